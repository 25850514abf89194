# SPDX-License-Identifier: Apache-2.0
"""Tests metadata on a real Redis server and a cluster with TLS: trusted certificates, and no plain-text secrets."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from servers import Cluster, Server, content, dieselctl, make_source


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


def certify(folder, name, alternative, days=2, issuer="ca"):
    """Makes folder/NAME.crt and .key, from the CA."""
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={alternative}\n")
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr")
    openssl("x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / f"{issuer}.crt", "-CAkey", folder / f"{issuer}.key",
            "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", folder / f"{name}.crt")


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certs = pathlib.Path(tempfile.mkdtemp(prefix="diesel."))
        cls.addClassCleanup(shutil.rmtree, cls.certs, True)
        for ca in ("ca", "stranger"):
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    f"/CN={ca}", "-keyout", cls.certs / f"{ca}.key", "-out", cls.certs / f"{ca}.crt")
        certify(cls.certs, "server", "DNS:localhost")
        certify(cls.certs, "elsewhere", "DNS:elsewhere.example,IP:192.0.2.1")
        certify(cls.certs, "client", "DNS:client")
        certify(cls.certs, "old", "DNS:localhost", days=-1)

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="diesel."))
        self.addCleanup(shutil.rmtree, self.root, True)
        self.source, self.dataset = self.root / "src", self.root / "ds"
        make_source(self.source, 60)
        self.env = {"DIESEL_REDIS_CA": str(self.certs / "ca.crt")}

    def options(self, name, clients="no"):
        return ("--tls-cert-file", str(self.certs / f"{name}.crt"), "--tls-key-file", str(self.certs / f"{name}.key"), "--tls-ca-cert-file",
                str(self.certs / "ca.crt"), "--tls-auth-clients", clients)

    def cli_options(self):
        return ("--tls", "--cacert", str(self.certs / "ca.crt"), "--cert", str(self.certs / "client.crt"), "--key",
                str(self.certs / "client.key"), "--insecure")

    def serve(self, name, clients="no"):
        server = Server(self.root, *self.options(name, clients), tls=self.cli_options())
        self.addCleanup(server.stop)
        return server

    def pack(self, server, *args, check=0, host="localhost", scheme="rediss", **env):
        return dieselctl("pack", "--meta", f"{scheme}://{host}:{server.port}/ds", *args, self.source, self.dataset, check=check,
                         **{"DIESEL_REDIS_WAIT": "2"} | env)

    def one_line(self, done, *words):
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse(self.dataset.exists())

    def test_whom_we_trust(self):
        server = self.serve("server")
        self.one_line(self.pack(server, check=1), "certificate is not accepted")
        self.one_line(self.pack(server, check=1, DIESEL_REDIS_CA=str(self.certs / "stranger.crt")), "certificate is not accepted")
        self.one_line(self.pack(server, check=1, host="127.0.0.1", **self.env), "for another name")
        self.one_line(self.pack(self.serve("elsewhere"), check=1, **self.env), "for another name")
        self.one_line(self.pack(self.serve("old"), check=1, **self.env), "expired")
        self.pack(server, **self.env)
        self.assertTrue((self.dataset / "meta.redis").read_text().splitlines()[1].startswith("rediss://localhost:"))
        dieselctl("rm", self.dataset, "class0/0.bin", **self.env)
        self.assertEqual(dieselctl("verify", self.dataset, **self.env).stderr, "")
        self.assertEqual(len(content(self.dataset)[0]), 59)

    def test_client_certificate(self):
        server = self.serve("server", "yes")
        self.one_line(self.pack(server, check=1, **self.env))
        own = {"DIESEL_REDIS_CERT": str(self.certs / "client.crt"), "DIESEL_REDIS_KEY": str(self.certs / "client.key")}
        self.one_line(self.pack(server, check=1, **self.env, DIESEL_REDIS_CERT=own["DIESEL_REDIS_CERT"]), "go together")
        self.one_line(self.pack(server, check=1, **self.env, **own | {"DIESEL_REDIS_KEY": str(self.certs / "server.key")}), "DIESEL_REDIS_KEY")
        self.one_line(self.pack(server, check=1, **self.env, **own | {"DIESEL_REDIS_CERT": "/nowhere"}), "/nowhere")
        self.one_line(self.pack(server, check=1, **own, DIESEL_REDIS_CA="/nowhere"), "/nowhere")
        self.pack(server, **self.env, **own)

    def test_plain_and_tls_do_not_mix(self):
        server = self.serve("server")
        self.one_line(self.pack(server, check=1, scheme="redis"))
        plain = Server(self.root)
        self.addCleanup(plain.stop)
        self.one_line(self.pack(plain, check=1, **self.env), "TLS")
        # A password that is meant for TLS is not sent in plain text.
        plain.cli("config", "set", "requirepass", "secret")
        self.one_line(self.pack(plain, check=1, scheme="redis", DIESEL_REDIS=f"rediss://:secret@localhost:{plain.port}"), "needs a password")
        self.pack(plain, scheme="redis", DIESEL_REDIS=f"redis://:secret@localhost:{plain.port}")

    def test_cluster(self):
        """Nodes are known by addresses, and have the certificate of the name that the user gave."""
        cluster = Cluster(self.root, 3, 0, *self.options("server"), "--tls-cluster", "yes", "--tls-replication", "yes", tls=self.cli_options())
        self.addCleanup(cluster.stop)
        self.pack(cluster.nodes[1], **self.env)
        dieselctl("rm", self.dataset, "class0/0.bin", **self.env)
        self.assertEqual(dieselctl("verify", self.dataset, **self.env).stderr, "")
        for s in cluster.nodes:
            self.assertGreater(int(s.cli("dbsize")), 250)


if __name__ == "__main__":
    if not shutil.which("redis-server") or not shutil.which("redis-cli") or not shutil.which("openssl"):
        print("skipped: there is no redis-server (./dev deps installs it)")
        sys.exit(77)
    unittest.main(verbosity=2)

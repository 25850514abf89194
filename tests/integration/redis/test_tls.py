# SPDX-License-Identifier: Apache-2.0
"""Tests metadata on a real Redis server and a cluster with TLS: trusted certificates, and no plain-text secrets."""
import subprocess

from common.commands import one_line
from servers import Case, Cluster, content, dieselctl, main, make_source, temporary


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


class TlsTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.certs = cls.enterClassContext(temporary())
        for ca in ("ca", "stranger"):
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    f"/CN={ca}", "-keyout", cls.certs / f"{ca}.key", "-out", cls.certs / f"{ca}.crt")
        certify(cls.certs, "server", "DNS:localhost")
        certify(cls.certs, "elsewhere", "DNS:elsewhere.example,IP:192.0.2.1")
        certify(cls.certs, "client", "DNS:client")
        certify(cls.certs, "old", "DNS:localhost", days=-1)

    def setUp(self):
        super().setUp()
        self.source, self.dataset = self.root / "src", self.root / "ds"
        make_source(self.source, 60)
        self.env = {"DIESEL_REDIS_CA": str(self.certs / "ca.crt")}

    def options(self, name, clients="no"):
        return ("--tls-cert-file", str(self.certs / f"{name}.crt"), "--tls-key-file", str(self.certs / f"{name}.key"), "--tls-ca-cert-file",
                str(self.certs / "ca.crt"), "--tls-auth-clients", clients)

    def cli_options(self):
        return ("--tls", "--cacert", str(self.certs / "ca.crt"), "--cert", str(self.certs / "client.crt"), "--key",
                str(self.certs / "client.key"), "--insecure")

    def serve_as(self, name, clients="no"):
        return self.serve(*self.options(name, clients), tls=self.cli_options())

    def pack(self, server, *args, check=0, host="localhost", scheme="rediss", **env):
        return dieselctl("pack", "--meta", f"{scheme}://{host}:{server.port}/ds", *args, self.source, self.dataset, check=check,
                         **{"DIESEL_REDIS_WAIT": "2"} | env)

    def refused(self, done, *words):
        one_line(done, *words)
        self.assertFalse(self.dataset.exists())

    def test_only_a_valid_certificate_of_the_name_is_accepted(self):
        server = self.serve_as("server")
        self.refused(self.pack(server, check=1), "certificate was rejected")
        self.refused(self.pack(server, check=1, DIESEL_REDIS_CA=str(self.certs / "stranger.crt")), "certificate was rejected")
        self.refused(self.pack(server, check=1, host="127.0.0.1", **self.env), "for another name")
        self.refused(self.pack(self.serve_as("elsewhere"), check=1, **self.env), "for another name")
        self.refused(self.pack(self.serve_as("old"), check=1, **self.env), "expired")
        self.pack(server, **self.env)
        self.assertTrue((self.dataset / "meta.redis").read_text().splitlines()[1].startswith("rediss://localhost:"))
        dieselctl("rm", self.dataset, "class0/0.bin", **self.env)
        self.assertEqual(dieselctl("verify", self.dataset, **self.env).stderr, "")
        self.assertEqual(len(content(self.dataset)[0]), 59)

    def test_a_client_certificate_needs_its_key(self):
        server = self.serve_as("server", "yes")
        self.refused(self.pack(server, check=1, **self.env))
        own = {"DIESEL_REDIS_CERT": str(self.certs / "client.crt"), "DIESEL_REDIS_KEY": str(self.certs / "client.key")}
        self.refused(self.pack(server, check=1, **self.env, DIESEL_REDIS_CERT=own["DIESEL_REDIS_CERT"]), "go together")
        self.refused(self.pack(server, check=1, **self.env, **own | {"DIESEL_REDIS_KEY": str(self.certs / "server.key")}), "DIESEL_REDIS_KEY")
        self.refused(self.pack(server, check=1, **self.env, **own | {"DIESEL_REDIS_CERT": "/nowhere"}), "/nowhere")
        self.refused(self.pack(server, check=1, **own, DIESEL_REDIS_CA="/nowhere"), "/nowhere")
        self.pack(server, **self.env, **own)

    def test_plain_and_tls_do_not_mix(self):
        server = self.serve_as("server")
        self.refused(self.pack(server, check=1, scheme="redis"))
        plain = self.serve()
        self.refused(self.pack(plain, check=1, **self.env), "TLS")
        # A password that is meant for TLS is not sent in plain text.
        plain.cli("config", "set", "requirepass", "secret")
        self.refused(self.pack(plain, check=1, scheme="redis", DIESEL_REDIS=f"rediss://:secret@localhost:{plain.port}"), "needs a password")
        self.pack(plain, scheme="redis", DIESEL_REDIS=f"redis://:secret@localhost:{plain.port}")

    def test_nodes_of_a_cluster_have_the_certificate_of_its_name(self):
        """Nodes are known by addresses, and have the certificate of the name that the user gave."""
        cluster = Cluster(self.root, 3, 0, *self.options("server"), "--tls-cluster", "yes", "--tls-replication", "yes", tls=self.cli_options())
        self.addCleanup(cluster.stop)
        self.pack(cluster.nodes[1], **self.env)
        dieselctl("rm", self.dataset, "class0/0.bin", **self.env)
        self.assertEqual(dieselctl("verify", self.dataset, **self.env).stderr, "")
        for s in cluster.nodes:
            self.assertGreater(int(s.cli("dbsize")), 250)


if __name__ == "__main__":
    main("openssl")

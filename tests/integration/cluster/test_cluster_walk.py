# SPDX-License-Identifier: Apache-2.0
"""Tests docs/tutorials/two-nodes.md: its own commands, except for the ports, print its outputs, and the job behaves as it promises."""
import json
import pathlib
import re
import sys
import unittest

from common.commands import needs
from nodes import had_no_answer, support

needs("torch")

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "docs" / "site"))
import blocks  # noqa: E402

N_SAMPLES, N_EPOCHS = 600, 3


class Walk(unittest.TestCase):
    def test_the_commands_of_the_walk_work(self):
        with blocks.ran(ROOT / "docs/tutorials/two-nodes.md") as page:
            self.assertEqual(page.wrong, [])
            said = page.run("cat node?.txt")
            self.assertEqual(len(re.findall(r"rank \d, epoch \d: \d+ samples", said)), 2 * N_EPOCHS, said)
            for epoch in range(N_EPOCHS):
                self.assertEqual(sum(int(n) for n in re.findall(rf"epoch {epoch}: (\d+) samples", said)), N_SAMPLES, said)
            statuses = [json.loads(page.run(f"dieselctl status --json --socket node{node}.sock")) for node in (1, 2)]
            # Both jobs together must read each chunk once.
            if not any(had_no_answer(s) for s in statuses):
                self.assertEqual(sum(s["cache"]["reads"] for s in statuses), len(support.chunk_files(page.folder / "photos.diesel")), statuses)
            # The chunk that lies in both lanes comes from the other node in the first epoch; no chunk does in later ones.
            self.assertLessEqual(sum(s["cluster"]["chunks_in"] for s in statuses), 1, statuses)


if __name__ == "__main__":
    unittest.main(verbosity=2)

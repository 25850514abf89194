# SPDX-License-Identifier: Apache-2.0
"""Tests `dieselctl pack FORMAT:PATH` and `dieselctl export`, with files of the formats' own writers. The environment is made once, in
build/importing, and has the packages of packages.txt. With the argument `torch`: that of the frameworks, and packages_torch.txt."""
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "wheel")]
import dieseld_support  # noqa: E402
from wheel_support import ROOT, importing_torch, kept_environment  # noqa: E402

if __name__ == "__main__":
    dieseld_support.require(dieseld_support.CTL)
    more = sys.argv[1:]
    python, path = importing_torch() if more else (kept_environment(ROOT / "build" / "importing", HERE / "packages.txt"), "")
    bin_folder = pathlib.Path(dieseld_support.BIN).resolve()
    daemon = dieseld_support.Daemon(cache="256M")
    environment = os.environ | {"DIESEL_BIN": str(bin_folder), "DIESEL_LIB": os.environ.get("DIESEL_LIB", str(bin_folder.parent / "lib")),
                                "PYTHONPATH": os.pathsep.join(filter(None, [path, str(ROOT / "client/python")])), "DIESEL_SOCKET": daemon.socket, "DIESEL_DIESELCTL": str(bin_folder / "dieselctl"), "HF_HUB_OFFLINE": "1",
                                "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HOME": dieseld_support.SCRATCH, "DIESEL_SCRATCH": dieseld_support.SCRATCH}
    status = os.spawnve(os.P_WAIT, str(python), [str(python), str(HERE / f"{'_'.join(['cases', *more])}.py"), "-v"], environment)
    daemon.stop()
    sys.exit(status)

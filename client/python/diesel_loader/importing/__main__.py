# SPDX-License-Identifier: Apache-2.0
"""python3 -m diesel_loader.importing pack FORMAT:PATH ... DATASET, which dieselctl runs."""
import sys

from .main import main

sys.exit(main(sys.argv[1:]))

"""`python -m torchcno.cli` is `cno`."""

import sys

from torchcno.cli import main

sys.exit(main())

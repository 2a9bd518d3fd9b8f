"""`python -m gpulease_cli`."""

import sys

from gpulease_cli.main import main

sys.exit(main())

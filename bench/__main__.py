"""`python -m bench` is `nonchalant bench`."""

import sys

from nonchalant.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench"]
    main()

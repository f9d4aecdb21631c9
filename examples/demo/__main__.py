"""`python -m examples.demo`: the demo, which stands in `run.py`.

Its libraries take a second to load. Until then there is nothing to end in order, so Ctrl-C just
ends it.
"""

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from examples.demo.run import main

    main()

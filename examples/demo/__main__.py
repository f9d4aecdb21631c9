"""`python -m examples.demo`: the demo, which stands in `pipeline_run.py`.

Its libraries take a second to load. Until then there is nothing to end in order, so Ctrl-C just
ends it.
"""

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from examples.demo.run import main
    except ModuleNotFoundError as error:
        remedy = "pip install 'contrada[spark,examples]', or: make demo"
        raise SystemExit(f"demo: error: {error.name} is missing: {remedy}") from None
    main()

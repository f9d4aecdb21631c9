"""What is kept until it is acknowledged: logs of records, and the stores that hold them.

`store` says what a store promises, `memory` is one whose failures are made on purpose. The store on
disk opens files, so it lives in `runtime`.
"""

"""The embedded TiDB: a small TiDB of one process with TiDB's own keys, DDL jobs and change log, the demo that runs on
it, and a Kafka broker on this machine.

    tidegate upstream start      a server of MySQL's protocol, whose change log `tidb:///DIR` reads
    tidegate demo                that database, a broker and a lake, compared at the end
    tidegate broker start        Kafka, from its own jars

It is a separate distribution, installed by `tidegate[upstream]`; Tidegate does not import it.
"""

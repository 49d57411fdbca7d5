"""The gateway: the hub (journal, engine, log), agents in process, configuration, and the command line."""

from babelgate._renamed import refuse_former_name

refuse_former_name(__name__)

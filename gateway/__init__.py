"""The gateway: hub (journal, engine, log), in-process agents, settings, and command line."""

from babelgate._renamed import refuse_former_name

refuse_former_name(__name__)

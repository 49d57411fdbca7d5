"""The gateway: HTTP, hub, engine, journal, agents in this process, settings, console and command line."""

from babelgate._renamed import refuse_former_name

refuse_former_name(__name__)

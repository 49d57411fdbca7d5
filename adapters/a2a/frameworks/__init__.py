"""Dialects of A2A by framework, one module each.

A new framework is a new module with a `Framework`, and a line here.
"""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.a2a.frameworks.a2a_samples import A2A_SAMPLES
from babelgate.adapters.a2a.frameworks.ag2 import AG2
from babelgate.adapters.a2a.frameworks.ag_ui import AG_UI
from babelgate.adapters.a2a.frameworks.agentstack import AGENTSTACK
from babelgate.adapters.a2a.frameworks.agno import AGNO
from babelgate.adapters.a2a.frameworks.crewai import CREWAI
from babelgate.adapters.a2a.frameworks.fasta2a import FASTA2A
from babelgate.adapters.a2a.frameworks.framework import Framework
from babelgate.adapters.a2a.frameworks.gemini_cli import GEMINI_CLI
from babelgate.adapters.a2a.frameworks.google_adk import GOOGLE_ADK
from babelgate.adapters.a2a.frameworks.kagent import KAGENT
from babelgate.adapters.a2a.frameworks.langgraph_api import LANGGRAPH_API
from babelgate.adapters.a2a.frameworks.opencode import OPENCODE
from babelgate.adapters.a2a.frameworks.protolabs import PROTOLABS
from babelgate.adapters.a2a.frameworks.strands import STRANDS

FRAMEWORKS: Final[Sequence[Framework]] = (
    GOOGLE_ADK,
    KAGENT,
    STRANDS,
    GEMINI_CLI,
    AGENTSTACK,
    A2A_SAMPLES,
    FASTA2A,
    AG_UI,
    LANGGRAPH_API,
    OPENCODE,
    CREWAI,
    AG2,
    PROTOLABS,
    AGNO,
)
"""Dialects of all frameworks. If two of them could read the same content, the first one reads it."""

"""Dialect of A2A in @ag-ui/a2a 0.0.6: tool calls and their results in data parts."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework, ToolUse, error_in_result
from babelgate.canonical import DataPart
from babelgate.canonical.json import as_object, as_text


def _read_tool(content: DecodedContent, part: DataPart) -> bool:
    """Add the tool call or the tool result in a part to the content. Return False if the part has neither."""
    data = as_object(part.data)
    if data.get("type") == "tool-call" and as_text(data.get("id")) and as_text(data.get("name")):
        content.tools.append(ToolUse(data["id"], data["name"], value=data.get("arguments")))
        return True
    if data.get("type") == "tool-result" and as_text(data.get("toolCallId")):
        result = data.get("payload")
        use = ToolUse(data["toolCallId"], "", ended=True, value=result, error=error_in_result(result))
        content.tools.append(use)
        return True
    return False


AG_UI: Final = Framework(read_data=_read_tool)

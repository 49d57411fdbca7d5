import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, generateId, getToolName, isToolUIPart } from "ai";
import { lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { createRoot } from "react-dom/client";

const GATEWAY = "http://127.0.0.1:8000";
const HEADERS = { "Babelgate-Sdk": "7" }; // with API keys, also: Authorization: `Bearer ${key}`

/** Return the names of the gateway's agents. */
async function loadAgents() {
  const response = await fetch(`${GATEWAY}/acp/agents?limit=1000`, { headers: HEADERS });
  return (await response.json()).agents.map(({ name }) => name);
}

const agents = await loadAgents();

// The URL of the page names the agent and the chat, so a reload shows the same chat.
const page = new URL(location.href);
const agent = page.searchParams.get("agent") ?? agents[0];
const isNew = !page.searchParams.has("chat");
const chat = page.searchParams.get("chat") ?? generateId();
page.searchParams.set("chat", chat);
history.replaceState(null, "", page);

const api = `${GATEWAY}/vercel-ui/${encodeURIComponent(agent)}`;
const transport = new DefaultChatTransport({ api, headers: HEADERS });

/** Return the messages that the gateway has of this chat, without an answer that is not complete yet. */
async function loadMessages() {
  const response = await fetch(`${api}/${chat}`, { headers: HEADERS });
  return response.ok ? (await response.json()).messages : [];
}

function Tool({ part, onAnswer }) {
  return (
    <pre>
      {getToolName(part)}({JSON.stringify(part.input)})
      {part.state === "output-available" && ` → ${JSON.stringify(part.output)}`}
      {part.state === "output-error" && ` failed: ${part.errorText}`}
      {part.state === "output-denied" && " denied"}
      {part.state === "approval-requested" && (
        <>
          {" "}
          <button onClick={() => onAnswer(part, true)}>Approve</button>{" "}
          <button onClick={() => onAnswer(part, false)}>Deny</button>
        </>
      )}
    </pre>
  );
}

function Part({ part, onAnswer }) {
  if (part.type === "text") return <span>{part.text}</span>;
  if (part.type === "reasoning") return <em>{part.text}</em>;
  if (part.type === "file") return <a href={part.url}>{part.mediaType}</a>;
  if (isToolUIPart(part)) return <Tool part={part} onAnswer={onAnswer} />;
  return null;
}

function Chat({ stored }) {
  const { messages, sendMessage, addToolApprovalResponse, status, error } = useChat({
    id: chat,
    messages: stored,
    transport,
    resume: true, // after a reload, the rest of an answer that is still running
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const isBusy = status === "submitted" || status === "streaming";

  function send(event) {
    event.preventDefault();
    const text = new FormData(event.target).get("text");
    event.target.reset();
    sendMessage({ text });
  }

  const answer = (part, approved) => addToolApprovalResponse({ id: part.approval.id, approved });
  const stop = () => fetch(`${api}/${chat}/stop`, { method: "POST", headers: HEADERS });

  return (
    <main data-status={status}>
      <nav>
        {agents.map((name) => (
          <a key={name} href={`?agent=${name}`}>{name} </a>
        ))}
      </nav>
      {messages.map((message) => (
        <article key={message.id} className={message.role}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} onAnswer={answer} />
          ))}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={send}>
        <input name="text" aria-label="Message" autoComplete="off" required />
        <button disabled={isBusy}>Send</button>
        <button type="button" disabled={!isBusy} onClick={stop}>Stop</button>
      </form>
    </main>
  );
}

const stored = isNew ? [] : await loadMessages();
createRoot(document.getElementById("root")).render(<Chat stored={stored} />);

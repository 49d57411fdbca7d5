import { CopilotChat, CopilotKitProvider, useDefaultRenderTool, useInterrupt } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const agents = Object.keys((await (await fetch("/copilotkit/info")).json()).agents);

// The URL of the page names the agent and the thread, so a reload shows the same conversation.
const page = new URL(location.href);
const agent = page.searchParams.get("agent") ?? agents[0];
const thread = page.searchParams.get("thread") ?? crypto.randomUUID();
page.searchParams.set("thread", thread);
history.replaceState(null, "", page);

function Question({ interrupt, onAnswer, onDecline }) {
  const isApproval = Boolean(interrupt.responseSchema?.properties?.approved);

  function answer(event) {
    event.preventDefault();
    onAnswer(new FormData(event.target).get("answer"));
  }

  return (
    <form className="question" onSubmit={answer}>
      <p>{interrupt.message}</p>
      {isApproval ? (
        <>
          <button type="button" onClick={() => onAnswer({ approved: true })}>Approve</button>{" "}
          <button type="button" onClick={() => onAnswer({ approved: false })}>Deny</button>
        </>
      ) : (
        <>
          <input name="answer" aria-label="Answer" autoComplete="off" required /> <button>Answer</button>{" "}
          <button type="button" onClick={onDecline}>Decline</button>
        </>
      )}
    </form>
  );
}

/** The open questions of a run. CopilotKit sends the answers when all have one. */
function Questions({ interrupts, resolve, cancel }) {
  const [answered, setAnswered] = useState([]);
  const open = interrupts.filter(({ id }) => !answered.includes(id));

  function finish(id, send) {
    setAnswered([...answered, id]);
    send();
  }

  return open.map((interrupt) => (
    <Question
      key={interrupt.id}
      interrupt={interrupt}
      onAnswer={(value) => finish(interrupt.id, () => resolve(value, interrupt.id))}
      onDecline={() => finish(interrupt.id, () => cancel(interrupt.id))}
    />
  ));
}

function Chat() {
  const [error, setError] = useState("");
  useDefaultRenderTool();
  useInterrupt({ render: (questions) => <Questions {...questions} /> });
  return (
    <>
      {error && <p role="alert">{error}</p>}
      <CopilotChat agentId={agent} threadId={thread} onError={(event) => setError(event.error.message)} />
    </>
  );
}

// The stop button closes the connection to the gateway. A reload does not: the runtime keeps it open.
const options = { babelgate: { onDisconnect: "cancel" } };

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider runtimeUrl="/copilotkit" agentId={agent} properties={options} enableInspector={false}>
    <main>
      <nav>
        {agents.map((name) => (
          <a key={name} href={`?agent=${name}`}>{name} </a>
        ))}
      </nav>
      <Chat />
    </main>
  </CopilotKitProvider>,
);

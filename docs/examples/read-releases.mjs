// Print the newest releases of a view, then each one that comes. Plain JavaScript: node 20 or later, or a browser.
//
//   node read-releases.mjs https://releases.example.org destinations
//
// A token is read from the variable TOKEN.

const [gateway, view] = process.argv.slice(2);
const headers = process.env.TOKEN ? { Authorization: `Bearer ${process.env.TOKEN}` } : {};
const newest = new Map(); // by window: the highest revision that was printed

const wait = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

function show({ record, intervals }) {
  if (!record) return; // refused, and nothing was released before
  const window = `${record.window.start}/${record.window.end}`;
  if ((newest.get(window) ?? 0) >= record.revision) return; // the same may come twice
  newest.set(window, record.revision);
  const counts = record.items.slice(0, 5).map(({ item }, at) => `${item} ${intervals[at].join(" to ")}`);
  console.log(record.window.start, `revision ${record.revision}:`, counts.join(", ") || "nothing");
}

async function get(path, more = {}) {
  const answer = await fetch(`${gateway}/v1/views/${view}${path}`, { headers: { ...headers, ...more } });
  if ([401, 403, 404].includes(answer.status)) {
    console.error(`${answer.status}: a token is missing, wrong or no longer good, or it does not give this view`);
    process.exit(1);
  }
  if (!answer.ok) throw new Error(`the gateway answers ${answer.status}`);
  return answer;
}

async function list() {
  let position = null;
  const windows = [];
  for (let cursor = ""; cursor !== null; ) {
    const answer = await get(`/windows?limit=500${cursor && `&cursor=${cursor}`}`);
    position ??= answer.headers.get("Stream-Position");
    const page = await answer.json();
    windows.push(...page.windows);
    cursor = page.next;
  }
  windows.reverse().forEach(show);
  return position;
}

// Follow the stream from a position; returns the position to go on from, null to begin with a list.
async function follow(position, good) {
  const answer = await get("/events", { "Last-Event-ID": position });
  good();
  let rest = "";
  for await (const bytes of answer.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + bytes).split("\n\n");
    rest = events.pop();
    for (const text of events) {
      const fields = Object.fromEntries(
        text.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
      );
      const data = fields.data ? JSON.parse(fields.data) : {};
      if (fields.event === "reset") {
        newest.clear();
        return null;
      }
      if (fields.event === "bye") {
        if (["revoked", "expired"].includes(data.reason)) {
          console.error(`the token is no longer good: ${data.reason}`);
          process.exit(1);
        }
        await wait(data.retry_after_s);
        return position;
      }
      if (data.href) {
        const window = await fetch(gateway + data.href, { headers });
        if (window.ok) show(await window.json());
      } else if (fields.event === "release") {
        show(data);
      }
      position = fields.id ?? position;
    }
  }
  return position;
}

let position = null;
let pause = 1;
for (;;) {
  try {
    position ??= await list();
    position = await follow(position, () => (pause = 1));
  } catch (error) {
    console.error(`${error.message}; trying again`);
  }
  await wait(pause * (0.8 + 0.4 * Math.random())); // so that many clients do not come at once
  pause = Math.min(30, pause * 2);
}

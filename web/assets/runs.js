// The list of runs: start times as people say them, and a fresh look while something runs.

for (const time of document.querySelectorAll("time")) {
  const at = new Date(time.dateTime);
  if (!Number.isNaN(at.getTime())) {
    time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
}

const LIVE_EVERY_MS = 2000;
const IDLE_EVERY_MS = 10000;

// What the list shows of a run; when one of these changes the page is loaded again.
const digest = (runs) => runs.map((run) => `${run.run} ${run.state} ${run.verdict}`).join("\n");

let known = null;

async function look() {
  let live = false;
  try {
    const answer = await fetch("/api/runs");
    if (answer.ok) {
      const { runs } = await answer.json();
      live = runs.some((run) => run.state === "running");
      if (known !== null && known !== digest(runs)) {
        location.reload();
        return;
      }
      known = digest(runs);
    }
  } catch {
    // The page is stopped or restarted: the next look finds it again.
  }
  setTimeout(look, live ? LIVE_EVERY_MS : IDLE_EVERY_MS);
}

look();

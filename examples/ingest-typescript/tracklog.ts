/** Records a run through `tracklog serve`. What was added is sent until it is answered, and is in the record once. */

export type Event = { type: string; [field: string]: unknown };
export type Where = { url: string; token: string; id: string; client: string };

const ANSWER_MS = 60_000;
const PAUSE_MS_MAX = 5_000;
const TRIES_MAX = 50;
const UNHEARD_TRIES_MAX = 6; // of a server that has never answered: in three seconds a wrong address is told
const AGAIN = new Set([429, 502, 503, 504]);

/** The server said no: sending the same again would not help. */
export class Refused extends Error {}

export class Recording {
  private readonly where: Where;
  private waiting: Event[] = [];
  private next = 1; // the start is event 0
  private triesMax = UNHEARD_TRIES_MAX;

  constructor(where: Where) {
    this.where = where;
  }

  async start(agent: string, task: string, more: object = {}): Promise<void> {
    const { id, client } = this.where;
    await this.post("/trajectories", { id, client, agent, task, ...more });
  }

  add(...events: Event[]): void {
    this.waiting.push(...events);
  }

  /** Returns when all that was added is durable. Call it before a tool does anything. */
  async flush(): Promise<void> {
    while (this.waiting.length > 0) {
      const events = this.waiting.slice(0, 100);
      const path = `/trajectories/${encodeURIComponent(this.where.id)}/events`;
      const answer = await this.post(path, { client: this.where.client, first: this.next, events });
      this.next = answer.next;
      this.waiting.splice(0, events.length);
    }
  }

  private async post(path: string, said: object): Promise<{ next: number }> {
    const body = JSON.stringify(said); // the same each time
    const headers = { "Content-Type": "application/json", Authorization: `Bearer ${this.where.token}` };
    for (let tries = 1; ; tries++) {
      const signal = AbortSignal.timeout(ANSWER_MS);
      const answer = await fetch(this.where.url + path, { method: "POST", headers, body, signal }).catch(String);
      if (typeof answer !== "string") this.triesMax = TRIES_MAX;
      const text = typeof answer === "string" ? answer : await answer.text().catch(String);
      if (typeof answer !== "string" && answer.ok)
        try { return JSON.parse(text); } catch {} // cut off: nobody knows, so it is sent again
      if (typeof answer !== "string" && !answer.ok && !AGAIN.has(answer.status)) throw new Refused(text);
      if (tries >= this.triesMax) throw new Error(`no answer from ${this.where.url} after ${tries} tries: ${text}`);
      await new Promise((go) => setTimeout(go, Math.min(PAUSE_MS_MAX, 50 * 2 ** tries)));
    }
  }
}

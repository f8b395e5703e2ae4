// What a pipeline's state means to whoever looks at it, and the question before its driver is killed.

import { confirmed } from "./dom.js";

const TONES = { running: "good", starting: "soon", restarting: "soon", stopped: "off", failed: "bad", crashed: "bad" };

export const pipelineState = (pipeline) => TONES[pipeline.state] ?? "off";

// In a demo drivers are there to be killed: nobody is asked.
export const mayKill = async (pipeline, stats) => stats.is_demo
  || confirmed(`Kill the driver of ${pipeline.name}? What it has not finished is done again by whoever starts it next.`, "kill -9");

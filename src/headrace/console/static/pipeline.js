// What a pipeline's state means to whoever looks at it.

const TONES = { running: "good", starting: "soon", restarting: "soon", stopped: "off", failed: "bad", crashed: "bad" };

export const pipelineState = (pipeline) => TONES[pipeline.state] ?? "off";

// LangGraph's checkpoints in ckptd.

export { LocalDaemonError, type LocalOptions } from "./local.js";
export { CkptdSaver, type LostHistory, type PruneStrategy, type SaverOptions } from "./saver.js";
export { BODY } from "./states.js";

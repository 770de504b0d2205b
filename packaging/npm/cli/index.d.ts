/**
 * Returns the path of the program for this machine. Throws if there is none, or if its package was
 * not installed.
 */
export function program(): string;

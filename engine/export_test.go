package engine

// RaceEnabled is raceEnabled, for the tests that see the engine as its callers do.
const RaceEnabled = raceEnabled

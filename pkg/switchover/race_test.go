//go:build race

package switchover

// underRace: the race detector makes everything many times slower.
const underRace = true

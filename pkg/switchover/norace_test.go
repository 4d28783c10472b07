//go:build !race

package switchover

const underRace = false

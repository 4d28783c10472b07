// Package replay plays the arrivals and the ends of claims, and measures what a policy makes of
// them.
//
// replay.go plays claims on simulated nodes, fleet.go and bound.go are what they are played on,
// moves.go moves pods, queue.go has the claims that wait, record.go what is measured.
package replay

// Package race tells tests whether the race detector watches them, which makes
// everything many times slower. Long random walks in one goroutine, of which it can say
// nothing, are shorter then; `make test` runs them in full length without it.
//
// It imports nothing.
package race

// Package short shortens what `make test` repeats: go test -short. `make nightly` runs all of it.
package short

import "testing"

// Some returns the first n of a list, or all if tests are not short.
func Some[T any](all []T, n int) []T {
	if testing.Short() && n < len(all) {
		return all[:n]
	}
	return all
}

// Of returns n, or all if tests are not short.
func Of(n, all int) int {
	if testing.Short() {
		return n
	}
	return all
}

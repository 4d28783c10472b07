// Package compat is the parent of the readers of other projects' formats: each
// turns what administrators have into what Tranche's own settings would say, and
// tells what it could not turn.
package compat

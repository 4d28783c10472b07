// Package notices collects the licenses of what Go programs are linked from.
package notices

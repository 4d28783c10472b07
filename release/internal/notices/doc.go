// Package notices collects the licences of what Go programs are linked from.
package notices

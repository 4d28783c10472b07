// Package serve is how the programs serve HTTP: with deadlines for clients that send or receive
// slowly, and with a limit of connections that strangers cannot use up.
package serve

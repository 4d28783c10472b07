// Package debian reads files from Debian packages that are fixed by checksum, so that
// an image contains the same C library whatever machine it is made on.
package debian

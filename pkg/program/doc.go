// Package program copies programs from the plugin's image to the host, because programs that run on
// the host cannot see the image.
package program

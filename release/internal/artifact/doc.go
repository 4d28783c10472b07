// Package artifact makes what a registry serves: the chart as helm wants it, and the
// image of all architectures as one archive, and pushes both.
package artifact

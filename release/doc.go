// Command release makes what users install: images, the packaged chart, archives of
// kubectl-tranche, a manifest for krew, bills of materials and checksums. It pushes
// image and chart to a registry. It needs no container engine.
package main

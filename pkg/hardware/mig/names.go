package mig

import (
	"fmt"
	"math"
	"strings"
)

// Variant is what sets a GPU instance profile apart from the plain one of its
// size, as nvidia-smi writes it behind the memory: "+me", "-me", "+gfx".
type Variant string

// The variants.
const (
	Plain        Variant = ""
	WithMedia    Variant = "+me"     // the GPU's one JPEG or OFA engine
	AllMedia     Variant = "+me.all" // every media engine of the GPU
	WithoutMedia Variant = "-me"
	WithGraphics Variant = "+gfx"
)

// VariantIn finds the variant in a profile's name, also of one that is newer
// than we are.
func VariantIn(name string) Variant {
	if i := strings.IndexAny(name, "+-"); i >= 0 {
		return Variant(name[i:])
	}
	return Plain
}

// ProfileName computes the name that nvidia-smi gives a profile ("1g.10gb+me"),
// for drivers that do not report it. slices are compute slices, memoryMiB is what
// an instance can use, totalBytes is the memory of the GPU.
func ProfileName(slices int, v Variant, memoryMiB, totalBytes uint64) string {
	return fmt.Sprintf("%dg.%dgb%s", slices, profileGB(memoryMiB, totalBytes), v)
}

// profileGB is the number of gigabytes in a profile's name: the instance's
// share of the GPU, rounded up to eighths, of the GPU's memory in whole GiB.
// nvidia-smi, mig-parted and the device plugin count so.
func profileGB(memoryMiB, totalBytes uint64) uint64 {
	if totalBytes == 0 {
		return 0
	}
	const eighths = 8
	share := float64(memoryMiB) * (1 << 20) / float64(totalBytes)
	share = math.Ceil(share*eighths) / eighths
	totalGiB := (totalBytes + 1<<30 - 1) >> 30
	return uint64(math.Round(share * float64(totalGiB)))
}

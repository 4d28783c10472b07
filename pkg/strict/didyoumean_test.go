package strict_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/strict"
)

func TestDidYouMean(t *testing.T) {
	classes := []string{"gpu.tranche.dev", "gpu-mig-1g-10gb.tranche.dev", "gpu-mig-1g-20gb.tranche.dev", "gpu.nvidia.com"}
	for name, want := range map[string]string{
		"gpu-mig-1g10gb.tranche.dev":  "; did you mean gpu-mig-1g-10gb.tranche.dev?",
		"GPU-MIG-1g-20gb.tranche.dev": "; did you mean gpu-mig-1g-20gb.tranche.dev?",
		"gpu-small.tranche.dev":       ".",
		"mig.nvidia.com":              ".",
		"fast":                        ".",
		"":                            ".",
	} {
		assert.Equal(t, want, strict.DidYouMean(name, classes), name)
	}
	assert.Equal(t, "; did you mean small-gpu?", strict.DidYouMean("smal-gpu", []string{"large", "small-gpu"}))
	assert.Equal(t, "; did you mean nvidia.com/mig-1g.10gb?", strict.DidYouMean("nvidia.com/mig-1g.11gb", []string{"nvidia.com/mig-1g.10gb", "nvidia.com/gpu"}))
}

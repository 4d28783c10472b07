package sysfs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzRenderMinor(f *testing.F) {
	f.Add("renderD128")
	f.Add("renderD-1")
	f.Fuzz(func(t *testing.T, name string) {
		if minor, ok := RenderMinor(name); ok {
			require.GreaterOrEqual(t, minor, 0)
		}
	})
}

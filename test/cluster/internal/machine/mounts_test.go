package machine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHiddenFolders(t *testing.T) {
	spec := Spec{
		Overlays: []string{"/etc", "/var/lib"},
		Tmpfs:    []string{"/run"},
		Keep:     []string{"/root/cluster", "/var/lib/jenkins/cluster", "/run/x", "/running/x", "/etc"},
	}
	var kept []string
	for _, bind := range hiddenFolders(spec) {
		require.Equal(t, bind.Source, bind.Target)
		kept = append(kept, bind.Source)
	}
	require.Equal(t, []string{"/var/lib/jenkins/cluster", "/run/x", "/etc"}, kept)
}

package nvfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

func TestMajorsAvoidTheHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices")
	require.NoError(t, os.WriteFile(path, []byte("Character devices:\n  1 mem\n195 nvidia\n1195 odd\n1197 odder\n\nBlock devices:\n1196 sd\n"), 0o600))
	m, err := ChooseMajors(path)
	require.NoError(t, err)
	assert.Equal(t, nvstate.Majors{Frontend: 1196, UVM: 1198, Caps: 1199}, m)
	m, err = ChooseMajors(filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	assert.Equal(t, nvstate.Majors{Frontend: 1195, UVM: 1196, Caps: 1197}, m)
	for _, n := range []int{m.Frontend, m.UVM, m.Caps} {
		assert.GreaterOrEqual(t, n, 512, "no driver can register it")
		assert.Less(t, n, 4096, "a device number has 12 bits of it")
	}
}

func TestMIGMinors(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(migMinors()), "\n")
	assert.Equal(t, []string{"config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"}, lines[:4])
	assert.Equal(t, "gpu31/gi14/ci7/access 4322", lines[len(lines)-1])
	for i, l := range lines {
		assert.True(t, strings.HasSuffix(l, fmt.Sprintf(" %d", i+1)), l)
	}
}

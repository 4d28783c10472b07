package follow

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
)

// Every key of the record of a reboot, as it stays. One that needs a newer version is not replaced.
func TestRebootFormat(t *testing.T) {
	f := &Follower{Config: Config{RebootFile: filepath.Join(t.TempDir(), "reboot.json")}}
	_, file, err := f.readReboot()
	require.NoError(t, err)
	var request rebootRequest
	filled.Value(&request)
	require.NoError(t, file.Write(request))
	data, err := os.ReadFile(f.RebootFile)
	require.NoError(t, err)
	golden.JSON(t, "testdata/reboot.json", data)
	got, _, err := f.readReboot()
	require.NoError(t, err)
	assert.Equal(t, request, got)

	require.NoError(t, os.WriteFile(f.RebootFile, []byte(`{"version":2}`), 0o600))
	_, _, err = f.readReboot()
	require.ErrorAs(t, err, new(*durable.NewerError))
}

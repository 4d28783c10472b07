package names_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/names"
)

func TestUninstallRequestIsReadBack(t *testing.T) {
	for _, r := range []names.UninstallRequest{{}, {Active: true, Beat: 1}, {Active: true, Force: true, Beat: 12}, {Beat: 3}} {
		assert.Equal(t, r, names.ReadUninstallRequest(r.Data()))
	}
	assert.Zero(t, names.ReadUninstallRequest(nil))
	assert.Zero(t, names.ReadUninstallRequest(map[string]string{"phase": "?", "force": "yes", "beat": "x"}))
}

package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPCIIDOf(t *testing.T) {
	assert.Equal(t, "0x233010DE", PCIIDOf(0x2330, 0x10de))
	assert.Equal(t, "0x00AB1002", PCIIDOf(0xab, 0x1002))
	assert.Empty(t, PCIIDOf(0x2330, 0))
}

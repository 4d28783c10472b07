package nvidia

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
)

// An entry that was not filled in neither counts nor hides those that follow it.
func TestLatestUtilization(t *testing.T) {
	var k kept
	const now = 1000
	found := k.latest([]nvml.ProcessUtilizationSample{
		{Pid: 1, TimeStamp: 10, SmUtil: 5}, {Pid: 1, TimeStamp: 20, SmUtil: 6}, {Pid: 1, TimeStamp: 15, SmUtil: 7},
		{Pid: 2, TimeStamp: 30, SmUtil: 101}, {Pid: 2, TimeStamp: 40, MemUtil: 1 << 31}, {Pid: 3, TimeStamp: 1 << 60, SmUtil: 50},
	}, now)
	assert.Equal(t, map[uint32]nvml.ProcessUtilizationSample{1: {Pid: 1, TimeStamp: 20, SmUtil: 6}}, found)
	assert.Equal(t, uint64(20), k.seen)
}

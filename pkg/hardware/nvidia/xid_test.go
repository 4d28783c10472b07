package nvidia

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestXIDTableIsSound(t *testing.T) {
	seen := map[uint64]bool{}
	for _, row := range xidTable {
		assert.NotEmpty(t, row.numbers)
		for _, number := range row.numbers {
			assert.False(t, seen[number], "XID %d is there twice", number)
			seen[number] = true
		}
		assert.NotEmpty(t, row.meaning, row.numbers)
		assert.NotEmpty(t, row.catalog, row.numbers)
		if row.class == xidFatal {
			assert.NotEqual(t, cureNone, row.cure, "%v: a person must know what to do", row.numbers)
		}
		byRule := xidFatal
		switch row.catalog {
		case "RESTART_APP":
			byRule = xidApplication
		case "IGNORE":
			byRule = xidInformative
		}
		if row.class != byRule && row.class != xidRuled {
			assert.NotEmpty(t, row.why, "%v departs from the catalog", row.numbers)
		}
	}
}

func TestXIDClasses(t *testing.T) {
	for number, want := range map[uint64]xidClass{
		13: xidApplication, 31: xidApplication, 43: xidApplication, 45: xidApplication, 68: xidApplication, 109: xidApplication,
		63: xidInformative, 92: xidInformative, 94: xidInformative, 171: xidInformative,
		46: xidFatal, 48: xidFatal, 62: xidFatal, 64: xidFatal, 74: xidFatal, 79: xidFatal, 95: xidFatal, 110: xidFatal, 119: xidFatal, 120: xidFatal, 140: xidFatal, 143: xidFatal,
		154: xidRuled,
		0:   xidFatal, 999: xidFatal, 12345: xidFatal,
	} {
		assert.Equal(t, want, lookupXID(number).class, "XID %d", number)
	}
}

// What NVIDIA's own drivers skip must never take a GPU out of service.
func TestWhatThePeersSkipIsNeverFatal(t *testing.T) {
	for _, number := range []uint64{13, 31, 43, 45, 68, 109} {
		assert.Equal(t, xidApplication, lookupXID(number).class, "XID %d", number)
	}
}

func TestXIDText(t *testing.T) {
	three := 3
	assert.Equal(t, "GPU 0000:1b:00.0: XID 95 in GPU instance 3: an uncorrectable memory error that could not be contained: "+
		"every program on the GPU is affected; drain the node, end every program that has the GPU open, this plugin included, "+
		"and run nvidia-smi --gpu-reset -i 0000:1b:00.0, or reboot the node", lookupXID(95).describe("0000:1b:00.0", 95, &three))
	assert.Equal(t, "GPU 0000:1b:00.0: XID 63: a bad row of memory is going to be replaced at the next reset",
		lookupXID(63).describe("0000:1b:00.0", 63, nil))
}

func TestEventsThatAreNoXID(t *testing.T) {
	for kind, want := range map[uint64]uint64{
		nvml.EventTypeXidCriticalError: 31, nvml.EventTypeDoubleBitEccError: 48, nvml.EventTypeFatalPoisonError: 95,
		nvml.EventTypeDramRetirementFailure: 64, nvml.EventTypeGpuUnavailableError: 79, nvml.EventTypeGpuRecoveryAction: 154,
	} {
		number, ok := xidOf(nvml.EventData{EventType: kind, EventData: 31})
		assert.True(t, ok)
		assert.Equal(t, want, number)
	}
	_, ok := xidOf(nvml.EventData{EventType: nvml.EventTypeClock})
	assert.False(t, ok)
	assert.Zero(t, xidEventTypes&(nvml.EventTypeClock|nvml.EventTypePState|nvml.EventTypeSingleBitEccError))
	for _, number := range xidOfEventType {
		if number != 0 {
			assert.True(t, slices.ContainsFunc(xidTable, func(e xidError) bool { return slices.Contains(e.numbers, number) }))
		}
	}
}

func TestRecovery(t *testing.T) {
	assert.NoError(t, recoveryErr("0000:1b:00.0", nvml.GPU_RECOVERY_ACTION_NONE))
	assert.NoError(t, recoveryErr("0000:1b:00.0", nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN))
	assert.Equal(t, gpu.CauseRecovery, gpu.CauseOf(recoveryErr("0000:1b:00.0", 42)))
	assert.ErrorContains(t, recoveryErr("0000:1b:00.0", 42), "GPU 0000:1b:00.0: the driver asks for recovery action 42, which this version does not know")
}

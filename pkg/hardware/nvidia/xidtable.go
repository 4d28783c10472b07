package nvidia

// xidTable is what each XID means to us.
//
// Source: NVIDIA, "Analyzing Xid Errors with the Xid Catalog"
// (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), the
// columns "Immediate Action" and "Xid 154 linkage", for Ampere and newer. The
// rule: RESTART_APP is an application error, IGNORE is informative, every other
// action is fatal. Numbers that the catalog calls unused are not here. A row
// that departs from the rule says why.
//
// Of the fatal ones none is known to stay within a GPU instance, so each counts
// for the whole GPU; the one memory error that is contained (94) is not fatal.
var xidTable = []xidError{
	// Application errors.
	{numbers: nums{8}, class: xidApplication, meaning: "a channel made no progress and was stopped", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{11, 25, 32, 80}, class: xidApplication, meaning: "corrupt or illegal commands were sent to the GPU", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{13}, class: xidApplication, meaning: "exception in the graphics engine, as by an index out of range", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{31}, class: xidApplication, meaning: "page fault: a program used an address that it does not have", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135}, class: xidApplication, meaning: "exception in a copy engine", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{43}, class: xidApplication, meaning: "a program's channel was reset after a fault of its own", cure: cureRestart, catalog: "IGNORE", why: "concerns one program only; the device plugin and the DRA driver skip it as an application error"},
	{numbers: nums{45}, class: xidApplication, meaning: "the channels of a program were removed, because it ended or after another error", cure: cureRestart, catalog: "WORKFLOW_XID_45", why: "follows every abrupt end of a program, and the other error has its own XID; the device plugin and the DRA driver skip it"},
	{numbers: nums{60}, class: xidApplication, meaning: "exception in the security engine's work for a program", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{68, 83, 84, 88, 89, 96, 97, 98}, class: xidApplication, meaning: "exception in a video decoder", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{69}, class: xidApplication, meaning: "a program used the graphics engine in a way that it does not know", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{82, 99, 100, 101, 102, 103, 104, 105}, class: xidApplication, meaning: "exception in a JPEG engine", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{86, 139}, class: xidApplication, meaning: "exception in an optical-flow engine", cure: cureRestart, catalog: "RESTART_APP"},
	{numbers: nums{109}, class: xidApplication, meaning: "a context did not give way in time", cure: cureRestart, catalog: "RESET_GPU", why: "also seen on healthy GPUs under load: the device plugin, the DRA driver and HAMi skip it; where a reset is needed the driver says so by its recovery action"},

	// Informative.
	{numbers: nums{37, 38}, class: xidInformative, meaning: "the context-switch firmware reported an error", catalog: "IGNORE"},
	{numbers: nums{44}, class: xidInformative, meaning: "fault in the graphics engine during a context switch", catalog: "IGNORE"},
	{numbers: nums{63}, class: xidInformative, meaning: "a bad row of memory is going to be replaced at the next reset", catalog: "IGNORE"},
	{numbers: nums{66, 67}, class: xidInformative, meaning: "the driver made an illegal access that was refused", catalog: "IGNORE"},
	{numbers: nums{78}, class: xidInformative, meaning: "a vGPU could not be started", cure: cureVGPU, catalog: "UPDATE_SWFW", why: "a mismatch of software; the GPU is healthy"},
	{numbers: nums{92}, class: xidInformative, meaning: "many single-bit memory errors, all corrected", catalog: "IGNORE"},
	{numbers: nums{93}, class: xidInformative, meaning: "the GPU's configuration memory is written more often than planned", catalog: "IGNORE"},
	{numbers: nums{94}, class: xidInformative, meaning: "an uncorrectable memory error that was contained: only the programs that touched it are lost", cure: cureRestart, catalog: "RESTART_APP", why: "no program's fault, so it is told"},
	{numbers: nums{106, 107}, class: xidInformative, meaning: "a test message of the management bus", catalog: "IGNORE"},
	{numbers: nums{108, 137}, class: xidInformative, meaning: "an access over NVLink was refused, on this GPU or the other one", catalog: "IGNORE"},
	{numbers: nums{121}, class: xidInformative, meaning: "error on the link between CPU and GPU, corrected", catalog: "IGNORE"},
	{numbers: nums{141}, class: xidInformative, meaning: "error on CUDA's fast path", catalog: "IGNORE"},
	{numbers: nums{147, 148}, class: xidInformative, meaning: "error on an NVLink that corrects itself", catalog: "WORKFLOW_NVLINK5_ERR", why: "every case of the workflow is IGNORE"},
	{numbers: nums{152, 153}, class: xidInformative, meaning: "error in a deep-learning accelerator that these GPUs do not have", catalog: "IGNORE"},
	{numbers: nums{157}, class: xidInformative, meaning: "a bad part of the chip could not be disabled", catalog: "IGNORE"},
	{numbers: nums{160, 161}, class: xidInformative, meaning: "a memory channel will be disabled, or could not be", catalog: "IGNORE"},
	{numbers: nums{162, 163, 164, 165}, class: xidInformative, meaning: "change in the power-smoothing circuit", catalog: "none", why: "the GPU goes on working without it"},
	{numbers: nums{166, 170}, class: xidInformative, meaning: "an NVLink met unexpected traffic in confidential computing", catalog: "none", why: "the catalog names no action"},
	{numbers: nums{168}, class: xidInformative, meaning: "part of the memory is out of use because of errors", catalog: "none", why: "the rest works"},
	{numbers: nums{171, 172}, class: xidInformative, meaning: "where the uncorrectable memory error was that XID 48 reports", catalog: "none", why: "goes with XID 48, which decides"},

	// Fatal, and the driver keeps account of it.
	{numbers: nums{48}, class: xidFatal, tracked: true, meaning: "uncorrectable memory error (double-bit ECC)", cure: cureReset, catalog: "WORKFLOW_XID_48"},
	{numbers: nums{62}, class: xidFatal, tracked: true, meaning: "the power-management controller stopped", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{64}, class: xidFatal, tracked: true, meaning: "a bad row of memory could not be replaced", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{74, 144, 145, 146, 149, 150}, class: xidFatal, tracked: true, meaning: "error on an NVLink", cure: cureNVLink, catalog: "WORKFLOW_NVLINK_ERR, WORKFLOW_NVLINK5_ERR"},
	{numbers: nums{79}, class: xidFatal, tracked: true, meaning: "the GPU fell off the bus", cure: cureReboot, catalog: "RESTART_BM"},
	{numbers: nums{95}, class: xidFatal, tracked: true, meaning: "an uncorrectable memory error that could not be contained: every program on the GPU is affected", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{110}, class: xidFatal, tracked: true, meaning: "fault in the GPU's security", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{120}, class: xidFatal, tracked: true, meaning: "the GPU's system processor (GSP) failed", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{136, 155}, class: xidFatal, tracked: true, meaning: "an NVLink could not be brought up", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{143}, class: xidFatal, tracked: true, meaning: "the GPU could not be initialised", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{154}, class: xidRuled, tracked: true, meaning: "the driver's recovery action changed", catalog: "XID_154"},
	{numbers: nums{156}, class: xidFatal, tracked: true, meaning: "a bad part of the chip goes out of use with the next reset", cure: cureReset, catalog: "RESET_GPU"},

	// Fatal, and only a reset ends it.
	{numbers: nums{46}, class: xidFatal, meaning: "the GPU stopped working", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{54}, class: xidFatal, meaning: "the GPU's auxiliary power is not connected", cure: cureCable, catalog: "CHECK_MECHANICALS"},
	{numbers: nums{119}, class: xidFatal, meaning: "the GPU's system processor (GSP) does not answer", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{140}, class: xidFatal, meaning: "an uncorrectable memory error escaped the error handling", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{142}, class: xidFatal, meaning: "exception in a video encoder", cure: cureSupport, catalog: "CONTACT_SUPPORT"},
	{numbers: nums{151}, class: xidFatal, meaning: "the keys of confidential computing could not be changed", cure: cureReboot, catalog: "RESTART_VM"},
	{numbers: nums{158}, class: xidFatal, meaning: "the GPU did not answer the driver in time", cure: cureReset, catalog: "RESET_GPU"},
	{numbers: nums{159}, class: xidFatal, meaning: "error in coherent memory traffic", cure: cureReset, catalog: "CHECK_UVM"},
	{numbers: nums{167}, class: xidFatal, meaning: "the PCIe bus did not answer in time", cure: cureReboot, catalog: "none", why: "what NVIDIA's name for it, PCIE_FATAL_TIMEOUT, says"},
	{numbers: nums{169}, class: xidFatal, meaning: "the security controller stopped", cure: cureReset, catalog: "none", why: "the same as 62 in another controller"},
}

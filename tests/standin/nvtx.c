/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A stand-in for NVIDIA's libnvToolsExt.so.1: the functions that are probed, which do nothing, as in the real
 * one when no tool is attached. For tests only.
 */

#define EXPORT __attribute__((visibility("default"), noinline))

int nvtxRangePushA(const char *message);
int nvtxRangePushEx(const void *attributes);
int nvtxRangePop(void);
int nvtxDomainRangePushEx(void *domain, const void *attributes);
int nvtxDomainRangePop(void *domain);

EXPORT int nvtxRangePushA(const char *message)
{
	__asm__ volatile("" : : "r"(message) : "memory");
	return -1;
}

EXPORT int nvtxRangePushEx(const void *attributes)
{
	__asm__ volatile("" : : "r"(attributes) : "memory");
	return -1;
}

EXPORT int nvtxRangePop(void)
{
	__asm__ volatile("" : : : "memory");
	return -1;
}

EXPORT int nvtxDomainRangePushEx(void *domain, const void *attributes)
{
	__asm__ volatile("" : : "r"(domain), "r"(attributes) : "memory");
	return -1;
}

EXPORT int nvtxDomainRangePop(void *domain)
{
	__asm__ volatile("" : : "r"(domain) : "memory");
	return -2;
}

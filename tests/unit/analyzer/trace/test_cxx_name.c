/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <string.h>

#include "analyzer/trace/cxx_name.h"

static const struct {
	const char *mangled, *name;
} cases[] = {
    {"jpeg_idct_islow", "jpeg_idct_islow"},
    {"", ""},
    {"_Z", "_Z"},
    {"_Zoo", "_Zoo"},
    {"_Z3fooi", "foo"},
    {"_ZL3fooi", "foo"},
    {"_ZSt4sortIPiEvT_S1_", "std::sort"},
    {"_ZN2at6native3addIfEEvRKNS_6TensorE", "at::native::add"},
    {"_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EE", "torch::autograd::Engine::execute"},
    {"_ZNK2at6Tensor3sumEv", "at::Tensor::sum"},
    {"_ZN2at12_GLOBAL__N_14loopIfLb1EEEvv", "at::(anonymous)::loop"},
    {"_ZN3c1010TensorImplC2Ev", "c10::TensorImpl::TensorImpl"},
    {"_ZN3c1010TensorImplD0Ev", "c10::TensorImpl::~"},
    {"_ZN2at6native7DEFAULT16VectorizedLoop2dIZZZNS0_3addEvENKUlvE_clEvENKUlvE0_clEvEUlfE_JfEEclEPPcPKlll",
     "at::native::DEFAULT::VectorizedLoop2d::operator()"},
    {"_ZZN2at6native3addEvENKUlvE_clEv", "at::native::add"},
    {"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector::push_back"},
    {"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE6appendEPKc",
     "std::__cxx11::basic_string::append"},
    {"_ZN2at6native12vectorized_l", "at::native::vectorized_l..."},
    {"_ZN2at6native3addIfNS_6Ten", "at::native::add..."},
};

TEST(mangled_names_become_readable)
{
	char name[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cxx_name(cases[i].mangled, name, sizeof(name));
		assert_string_equal(name, cases[i].name);
	}
}

/* Demangles names that are cut anywhere, with any byte in them, into buffers of any size. */
TEST(damaged_mangled_names_do_no_harm)
{
	char mangled[200], name[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t length = 0; length <= strlen(cases[i].mangled); length++)
			for (size_t size = 1; size < 60; size += 7) {
				memcpy(mangled, cases[i].mangled, length);
				mangled[length] = '\0';
				if (length)
					mangled[(7 * length + size) % length] ^= (char)(size & 0x1f);
				memset(name, 'x', sizeof(name));
				cxx_name(mangled, name, size);
				assert_true(strnlen(name, size) < size);
				assert_int_equal(name[size], 'x');
			}
}

// Small kernels by hand. A parameter is one word or an address.
#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {

const char* const kTestKernels = R"(
.version 6.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 variable = 42;
.visible .const .align 4 .u32 constant = 7;
.extern .shared .align 4 .b8 dynamic[];
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 text[4] = {98, 97, 100, 0};

// Every word of an array grows.
.visible .entry add(.param .u64 array, .param .u32 amount)
{
.reg .b32 %r<6>;
.reg .b64 %rd<3>;
ld.param.u64 %rd0, [array];
ld.param.u32 %r0, [amount];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.u32 %r4, %r2, %r3, %r1;
mul.wide.u32 %rd1, %r4, 4;
add.u64 %rd2, %rd0, %rd1;
ld.global.u32 %r5, [%rd2];
add.u32 %r5, %r5, %r0;
st.global.u32 [%rd2], %r5;
ret;
}

.visible .entry copy(.param .u64 to, .param .u64 from)
{
.reg .b32 %r<6>;
.reg .b64 %rd<4>;
ld.param.u64 %rd0, [to];
ld.param.u64 %rd1, [from];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.u32 %r4, %r2, %r3, %r1;
mul.wide.u32 %rd2, %r4, 4;
add.u64 %rd0, %rd0, %rd2;
add.u64 %rd1, %rd1, %rd2;
ld.global.u32 %r5, [%rd1];
st.global.u32 [%rd0], %r5;
ret;
}

// Two instructions.
.visible .entry nothing()
{
.reg .b32 %r<1>;
mov.u32 %r0, 0;
ret;
}

.visible .entry read_variables(.param .u64 to)
{
.reg .b32 %r<2>;
.reg .b64 %rd<1>;
ld.param.u64 %rd0, [to];
ld.global.u32 %r0, [variable];
ld.const.u32 %r1, [constant];
st.global.u32 [%rd0], %r0;
st.global.u32 [%rd0+4], %r1;
ret;
}

// Words through dynamic shared memory: the block's words in reverse order.
.visible .entry reverse(.param .u64 array)
{
.reg .b32 %r<8>;
.reg .b64 %rd<3>;
ld.param.u64 %rd0, [array];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ntid.x;
mul.wide.u32 %rd1, %r0, 4;
add.u64 %rd2, %rd0, %rd1;
ld.global.u32 %r2, [%rd2];
mov.u32 %r3, dynamic;
sub.u32 %r4, %r1, %r0;
sub.u32 %r4, %r4, 1;
mad.lo.u32 %r5, %r4, 4, %r3;
st.shared.u32 [%r5], %r2;
bar.sync 0;
mad.lo.u32 %r6, %r0, 4, %r3;
ld.shared.u32 %r7, [%r6];
st.global.u32 [%rd2], %r7;
ret;
}

.visible .entry small_blocks(.param .u64 array)
.maxntid 64, 1, 1
{
ret;
}

.visible .entry exact_blocks()
.reqntid 32, 1, 1
{
ret;
}

.visible .entry much_shared()
{
.shared .align 4 .b8 words[40960];
st.shared.u32 [words+40956], 1;
ret;
}

// Every thread writes the same word.
.visible .entry racing()
{
.reg .b32 %r<1>;
.shared .align 4 .b8 word[4];
mov.u32 %r0, %tid.x;
st.shared.u32 [word], %r0;
ret;
}

.visible .entry mixed(.param .u64 to, .param .u8 small, .param .u16 middle, .param .u64 large)
{
.reg .b16 %h<2>;
.reg .b64 %rd<5>;
ld.param.u64 %rd0, [to];
ld.param.u8 %h0, [small];
ld.param.u16 %h1, [middle];
ld.param.u64 %rd1, [large];
cvt.u64.u16 %rd2, %h0;
cvt.u64.u16 %rd3, %h1;
st.global.u64 [%rd0], %rd2;
st.global.u64 [%rd0+8], %rd3;
st.global.u64 [%rd0+16], %rd1;
ret;
}

.visible .entry endless()
{
AGAIN:
bra AGAIN;
}

.visible .entry trapped()
{
trap;
}

.visible .entry asserted()
{
.reg .b32 %r<1>;
.reg .b64 %rd<2>;
mov.u64 %rd0, text;
cvta.global.u64 %rd1, %rd0;
mov.u32 %r0, 12;
{
.param .b64 p0;
st.param.b64 [p0], %rd1;
.param .b64 p1;
st.param.b64 [p1], %rd1;
.param .b32 p2;
st.param.b32 [p2], %r0;
.param .b64 p3;
st.param.b64 [p3], %rd1;
.param .b64 p4;
st.param.b64 [p4], 1;
call.uni __assertfail, (p0, p1, p2, p3, p4);
}
ret;
}
)";

}  // namespace weightpress::cuda_driver::testing
